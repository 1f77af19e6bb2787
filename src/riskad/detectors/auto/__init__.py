r"""AutoRAD: several kinds of detector over learned features, combined by held-out labels.

There are few labels and many unlabelled rows. So the representation is learned from the unlabelled
rows (`riskad.detectors.features.LearnedFeatures`), in two views of the columns, and the labelled
rows decide on top of it. The network was trained on other tables and reads rows of this one; with
more than 100 columns it gets principal components. Its knowledge helps most with few labels, and
trees on labelled rows, however many, help most with many: so the weight of the network falls with
the number of labelled anomalies, and that of the trees rises.

In a frame, a column with up to ten categories becomes one yes/no column for each. A column with
more becomes the frequency rank of each category and, where the labels are clear enough, the
evidence of the labelled anomalies on each (`riskad.rows.encoding`), in folds without the held-out
labels.

`views` says which rows take part and what members see of them, `members` which members there are
and how many a budget allows, `cross_fit` how held-out labels weigh them, `novelty` how unseen kinds
of anomaly count, and `detector` fits, scores and decides.
"""

from riskad.detectors.auto.detector import AutoRAD

__all__ = ["AutoRAD"]
