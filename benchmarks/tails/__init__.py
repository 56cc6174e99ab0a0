"""Steady tails: `open_loop` runs at half of the peak, `disturbances` beside the calm, `callbacks` of a slow service.

`watching` looks at who ran and at what members saw, `moments` says what held up messages that took long.
`parameters` says what one run does and its targets, `tails` runs the parts.
"""
