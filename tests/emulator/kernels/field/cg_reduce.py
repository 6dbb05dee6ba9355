def reference(x):
    return x.max() - x.min()
