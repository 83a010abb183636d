"""What FedSGD's steps train: one network a module, with first weights, gradients and scores."""
