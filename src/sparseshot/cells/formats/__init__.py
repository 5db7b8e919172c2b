"""One small module for each format in which people keep cells."""
