"""Text analysis without models: language, sentences, passages, stemmed terms, similarity hash."""
