def reference(x):
    return x.cumsum(0)
