"""How many tokens to draft and to verify.

In: confidences, acceptance and measured costs of earlier steps. Out: a number of drafts for each request.
"""
