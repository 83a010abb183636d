"""What users bring that is no single PyG ``Data``: sets of graphs, data set objects, NetworkX, arrays."""
