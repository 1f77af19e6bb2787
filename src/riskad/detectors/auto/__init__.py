r"""AutoRAD: several kinds of detector over learned features, combined by held-out labels.

There are few labels and many unlabelled rows. So the representation is learned from the unlabelled
rows (`riskad.detectors.features.LearnedFeatures`), in two views of the columns, and the labelled
rows decide on top of it. The default members are

| member | what it is | sees | b |
|---|---|---|---|
| smooth forest | `ForestRAD` | the smooth view: columns, outlier scores, components | 1 |
| kernel | `ShallowRAD` | the smooth view: Gaussian kernels, outlier scores | 1/2 |
| network | `PretrainedRAD` | the plain view: columns, outlier scores | 6 / (1 + m / 100) |
| boosted | `BoostedRAD` | as the smooth forest | 3/2 |
| labelled trees | `LabelledTrees` | the plain view: columns | 2 min(1, m / 50) |
| novelty | `Novelty` | the plain view: outlier scores | by held-out kinds |

where m is the number of labelled anomalies. The network was trained on other tables and reads rows
of this one; with more than 100 columns it gets principal components. Labelled trees learn from all
labelled rows, however many, and only from those; they need at least ten labelled rows of each kind.
Labelled trees and the boosted member need LightGBM. `unseen_kinds` sets the weight of novelty.

Others can be named in `members=[...]`:

| member | what it is | sees | b |
|---|---|---|---|
| forest | `ForestRAD` | columns, outlier scores, components of columns and kernels, distances | 1 |
| linear | `ShallowRAD` | the smooth view: columns | 1/2 |
| distilled network | `DistilledForest` | as the smooth forest | 3 / (1 + m / 100) |

The distilled network is a forest trained to reproduce the scores that `PretrainedRAD` gives to a
thousand unlabelled rows. It scores rows faster than the network. `members="quick"` uses it in place
of the network, with the other default members unchanged. `deep=True` adds a `DeepRAD`, which sees
the same features as the smooth forest.

In a frame, a column with up to ten categories becomes one yes/no column for each. A column with
more becomes the frequency rank of each category and, where the labels are clear enough, the
evidence of the labelled anomalies on each category (`riskad.rows.encoding`). In each fold
this evidence is computed without the held-out labels.

Each member's scores are standardised to mean 0 and standard deviation 1 on the unlabelled rows and
averaged with weights w_k. With A_k the AUC of member k on held-out labelled rows, A the best of
them and SE the standard error of A,

    w_k  ~  b_k exp(-(A - A_k) / SE).

A clearly worse member counts little. SE is large when there are few anomalies, so the weights are
then close to b_k. With fewer than two labelled rows of a kind nothing can be held out, and the
weights are b_k. Unlabelled rows are held out, too, so that the scores of both can be compared. On
each fold, the average is judged with the weights that the other folds give, and with members whose
settings were chosen without held-out labels: its AUC is measured on rows whose labels no part of
the model has seen.

The network's prior knowledge helps most with few labels, and labelled trees help most with many: so
b falls with m for the network and rises for the trees. The kernel can do what a linear member does.
Novelty does not follow this rule: its share w of the average comes from held-out kinds of anomaly,
and falls as 1 / (1 + m / 50).

`budget` and `plan` decide how much work a fit does, `samples` which rows take part, `views` what
members see, and `members` which members there are. `held_out` measures members on held-out labels,
and `scoring` scores new rows.
"""

from riskad.detectors.auto.detector import AutoRAD

__all__ = ["AutoRAD"]
