"""Table to text: data, models, private training over sequences, generation and its five metrics."""
