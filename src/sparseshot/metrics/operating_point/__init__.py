"""The threshold of a model, and the quality to expect there, from held-out marks."""
