"""The code behind the course on positional encodings.

Attention is blind to order, and position can be let in through exactly three doors: the embeddings
(`sinusoidal`, `learned`), the queries and keys (`rope`, `context_extension`), and the scores
(`relative_bias`). Each notebook says which module to open; `python -m helpers lab` starts the course.
"""
