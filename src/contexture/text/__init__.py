"""Facts about a text that need no model: language, sentences, stemmed terms, similarity hash."""
