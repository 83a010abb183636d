"""A user's own data as PyG, NumPy, NetworkX and OGB have them, made plain: tensors that are computed on."""
