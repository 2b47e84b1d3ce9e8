"""What a request asks of sampling, and what that does to rows of logits and to text.

In: sampling parameters, logits, tokens. Out: shaped logits, and text up to where it stops.
"""
