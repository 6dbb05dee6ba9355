def reference(x):
    return x.norm(dim=1)
