r"""AutoRAD: several kinds of detector over learned features, combined by held-out labels.

Labels are few and the unlabelled rows are many. So the unlabelled rows teach the representation
(`riskad.detectors.features.LearnedFeatures`), in two views of the columns, and labelled rows decide
on it. By default the members are

| member | what it is | sees | b |
|---|---|---|---|
| smooth forest | `ForestRAD` | the smooth view: columns, outlier scores, components | 1 |
| kernel | `ShallowRAD` | the smooth view: Gaussian kernels, outlier scores | 1/2 |
| network | `PretrainedRAD` | the plain view: columns, outlier scores | 6 / (1 + m / 100) |
| boosted | `BoostedRAD` | as the smooth forest | 3/2 |
| labelled trees | `LabelledTrees` | the plain view: columns | 2 min(1, m / 50) |
| novelty | `Novelty` | the plain view: outlier scores | by held-out kinds |

with m labelled anomalies. The network was trained on other tables and reads rows of this one; of
more than 100 columns it gets components. Labelled trees learn from all labelled rows, however many,
and from no others; they are a member from ten labelled rows of each kind on. They and the boosted
member need LightGBM. `unseen_kinds` says what novelty weighs.

Others can be named in `members=[...]`:

| member | what it is | sees | b |
|---|---|---|---|
| forest | `ForestRAD` | columns, outlier scores, components of columns and kernels, distances | 1 |
| linear | `ShallowRAD` | the smooth view: columns | 1/2 |
| distilled network | `DistilledForest` | as the smooth forest | 3 / (1 + m / 100) |

The distilled network is a forest that has learned the scores which `PretrainedRAD` gives to a
thousand unlabelled rows: it scores rows more quickly than the network. `members="quick"` takes it
in place of the network, beside the other default members. Models of earlier versions have a
distilled forest, which sees what the forest does. `deep=True` adds a `DeepRAD`, which sees what the
smooth forest does.

Of a frame, a column of up to ten categories becomes a yes/no column for each. One of more becomes
their places in the order of frequency and, where it is clear, what labelled anomalies say of each
category (`riskad.rows.level_evidence`): for the folds of held-out labels, without these.

Each member's scores are brought to mean 0 and standard deviation 1 on the unlabelled rows and
averaged with weights w_k. With A_k the AUC of member k on held-out labelled rows, A the best of
them and SE the standard error of A,

    w_k  ~  b_k exp(-(A - A_k) / SE):

what is clearly worse counts little, and since SE is large where anomalies are few, weights are
then nearly b_k. With fewer than two labelled rows of a kind nothing can be held out, and they are.
Unlabelled rows are held out, too, so that the scores of both may be compared. The average that is
judged on a fold has the weights that the other folds give, and members whose settings no held-out
label has chosen: its AUC is that of rows whose labels nobody has seen.
What the network knows beforehand counts most where labels are few, and labelled trees where they
are many: so b falls with m for the one and rises for the others. The kernel can do what a linear
member does, and novelty is outside of this rule: it has the share w of the average that held-out
kinds of anomaly ask for, which falls as 1 / (1 + m / 50).

How much work a fit is to be is in `budget` and `plan`, which rows take part in `samples`, what
members see in `views`, who they are in `members`, what they do on held-out labels in `held_out`,
and how new rows are scored in `scoring`.
"""

from riskad.detectors.auto.detector import AutoRAD

__all__ = ["AutoRAD"]
