"""One HTML file for one run or several: no network, nothing to install, readable without JavaScript.

What a candidate wrote (its name, source, log, kernels, error messages) is hostile: templates escape all of it, and
`crucible.legible` makes visible what would change how the rest reads.
"""
