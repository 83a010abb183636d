"""FedGCN: sums of neighbours' features are exchanged once, before a GCN is averaged."""
