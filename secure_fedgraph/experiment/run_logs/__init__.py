"""Where a run's scores go besides its folder: MLflow or TensorBoard, both optional extras, off by default."""
