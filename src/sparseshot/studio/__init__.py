"""The studio: a page in the browser to mark cells, train, and see what is found."""
