"""The paper's studies, each as plain data that a figure is drawn from.

gradients          L3 and the gradient on an unknown label, from the library's own losses
sensitivity        the grid of GR's hyper-parameters, declared once, and what its runs came to
distinguishability how far apart the confidences of true positives and true negatives are, by epoch
assumptions        how often an unknown label is positive, by confidence, against the k_hat of Eq. (kx)
archive            the runs that a folder holds, by what was trained
plots              the drawings
"""
