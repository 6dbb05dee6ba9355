import torch.nn.functional as F


def reference(x, mean, log_var, gamma, beta):
    return F.relu(F.batch_norm(x, mean, log_var.exp(), gamma, beta, False, 0.0, 1e-5))
