"""Clients in this process, how their errors travel, and the memory that the process keeps."""
