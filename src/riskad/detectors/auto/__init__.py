r"""AutoRAD: several kinds of detector over learned features, combined by held-out labels.

Labels are few and the unlabelled rows are large. So the unlabelled rows teaches the representation
(`riskad.detectors.features.LearnedFeatures`), in two views of the columns, and labelled rows decide
on it:

| member | what it is | sees |
|---|---|---|
| forest | `ForestRAD` | columns, outlier scores, components of columns and kernels, distances |
| smooth forest | `ForestRAD` | the smooth view: columns, outlier scores, components |
| kernel | `ShallowRAD` | the smooth view: Gaussian kernels, outlier scores |
| boosted | `BoostedRAD` | as the smooth forest, if LightGBM is installed |
| linear | `ShallowRAD` | the smooth view: columns |
| distilled forest | `DistilledForest` | as the forest |
| deep | `DeepRAD` | as the smooth forest, if asked for |
| novelty | `Novelty` | outlier scores, whatever the labels (`novelty`, `unseen_kinds`) |

The distilled one learns the scores that `PretrainedRAD` gives to a thousand unlabelled rows.

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
b_k is 1/2 for the linear member, since the kernel can do what it does, and 1 for the others but
the distilled forest. What its teacher knows beforehand counts most where labels are few: it has
3 / (1 + m / 100) with m labelled anomalies.

How much work a fit is to be is in `budget` and `plan`, which rows take part in `samples`, what
members see in `views`, who they are in `members`, what they do on held-out labels in `held_out`,
and how new rows are scored in `scoring`.
"""

from riskad.detectors.auto.detector import AutoRAD

__all__ = ["AutoRAD"]
