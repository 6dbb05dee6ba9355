def reference(x):
    return x.flip(1) - x.mean(1, keepdim=True)
