"""What ``doctor`` looks at: packages, data, processors, memory and folders, all without torch."""
