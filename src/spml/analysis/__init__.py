"""The paper's studies: the data of each figure, and the drawings.

gradients          L3 and the gradient on an unknown label, from the library's own losses
sensitivity        the grid of GR's hyper-parameters and the results of its runs
distinguishability the distance between confidences of true positives and true negatives, by epoch
assumptions        the share of positives among unknown labels, by confidence, and k_hat of Eq. (kx)
archive            the finished runs of a folder
plots              the drawings
"""
