"""Values of updates that the server never reads: a carrier of CKKS ciphertexts for FairGraphFL."""
