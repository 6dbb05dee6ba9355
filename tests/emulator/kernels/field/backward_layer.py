def reference(x, grad, weight):
    return [grad @ weight, grad.t() @ x, grad.sum(0)]
