"""ProGAP: stages of federated steps, each reading noised sums over links that were made before it."""
