"""Every cell of a whole slide: tiles through a network, shards, resume, export."""
