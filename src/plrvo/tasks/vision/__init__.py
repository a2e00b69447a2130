"""Images: data sets, models, and features from a pretrained network."""
