"""Pictures and words: pure functions from states and summaries to text. Nothing here prints."""
