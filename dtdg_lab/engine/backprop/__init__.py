"""Ways to compute the gradients of a step: whole, in blocks of time, pipelined, over decayed windows."""
