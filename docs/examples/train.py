"""Trains a classifier on made-up data of numbers and categories: train.py mlp|xgb codes|onehot.

It needs numpy, scikit-learn and xgboost (PyPI).
"""

import sys

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from xgboost import XGBClassifier

ROWS, NUMBERS, CATEGORICAL, CATEGORIES = 40_000, 8, 4, 50


def main() -> None:
    """Makes the data, encodes the categories, trains a model and prints its accuracy."""
    model_name, encoding = sys.argv[1:]
    random = np.random.default_rng(1)
    numbers = random.normal(size=(ROWS, NUMBERS))
    codes = random.integers(CATEGORIES, size=(ROWS, CATEGORICAL))
    # A category has a weight of its own, whatever its code is.
    weights = random.normal(size=(CATEGORICAL, CATEGORIES))
    score = numbers.sum(axis=1) + sum(weights[column][codes[:, column]] for column in range(CATEGORICAL))
    labels = score > 0
    if encoding == "onehot":
        encoded = OneHotEncoder(sparse_output=False).fit_transform(codes)
    else:
        encoded = StandardScaler().fit_transform(codes)
    data = np.hstack([numbers, encoded])
    train, test, train_labels, test_labels = train_test_split(data, labels, random_state=1)
    if model_name == "mlp":
        model = MLPClassifier(hidden_layer_sizes=(32,), max_iter=10, early_stopping=True, random_state=1)
    else:
        model = XGBClassifier(n_estimators=50, random_state=1)
    model.fit(train, train_labels)
    print(f"accuracy {model.score(test, test_labels):.3f}")


if __name__ == "__main__":
    main()
