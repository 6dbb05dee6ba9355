def reference(x):
    return x.abs().amax(1)
