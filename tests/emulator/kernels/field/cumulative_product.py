def reference(x):
    return x.cumprod(1)
