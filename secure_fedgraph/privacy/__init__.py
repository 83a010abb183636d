"""What a reader can learn: protections, policies and the ledger."""
