"""Flower as the way: the server's end, a silo's end, and the private parts of Flower that both stand on."""
