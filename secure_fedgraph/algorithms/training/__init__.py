"""Local training that algorithms share: steps, losses by task, weights of clients."""
