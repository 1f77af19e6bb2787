r"""AutoRAD: several kinds of detector over learned features, combined by held-out labels.

There are few labels and many unlabelled rows. So the representation is learned from the unlabelled
rows (`riskad.detectors.features.LearnedFeatures`), in two views of the columns, and the labelled
rows decide on top of it. The members are

| member | what it is | sees | b |
|---|---|---|---|
| smooth forest | `ForestRAD` | the smooth view: columns, outlier scores, components | 1 |
| kernel | `ShallowRAD` | the smooth view: Gaussian kernels, outlier scores | 1/2 |
| network | `PretrainedRAD` | the plain view: columns, outlier scores | 6 / (1 + m / 100) |
| boosted | `BoostedRAD` | as the smooth forest | 3/2 |
| labelled trees | `LabelledTrees` | the plain view: columns | 2 min(1, m / 50) |
| novelty | `Novelty` | the plain view: outlier scores | by held-out kinds |

where m is the number of labelled anomalies and b the weight of a member beside others that do
equally well. The network was trained on other tables and reads rows of this one; with more than 100
columns it gets principal components. Labelled trees learn from all labelled rows, however many, and
only from those; they need at least ten labelled rows of each kind. The network's prior knowledge
helps most with few labels, and labelled trees help most with many: so b falls with m for the
network and rises for the trees. Labelled trees and the boosted member need LightGBM.

In a frame, a column with up to ten categories becomes one yes/no column for each. A column with
more becomes the frequency rank of each category and, where the labels are clear enough, the
evidence of the labelled anomalies on each category (`riskad.rows.encoding`). In each fold
this evidence is computed without the held-out labels.

`views` says which rows take part and what members see of them, `members` which members there are
and how many a budget allows, `cross_fit` how held-out labels weigh them, `novelty` how unseen kinds
of anomaly count, and `detector` fits, scores and decides.
"""

from riskad.detectors.auto.detector import AutoRAD

__all__ = ["AutoRAD"]
