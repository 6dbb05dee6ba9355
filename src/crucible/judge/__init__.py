"""The judge: a task and its candidates go in, verdicts that can be trusted come out."""
