# SPDX-License-Identifier: Apache-2.0
"""Pipelines of scikit-learn through skl2onnx, against scikit-learn itself."""

from __future__ import annotations

import lmnative
import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install skl2onnx")
skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed: pip install skl2onnx")

from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType  # noqa: E402
from sklearn import (  # noqa: E402  # noqa: E402
    cluster,
    compose,
    decomposition,
    ensemble,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)

pytestmark = pytest.mark.filterwarnings("ignore")

GENERATOR = np.random.default_rng(11)
X = GENERATOR.standard_normal((300, 6)).astype(np.float32)
BINARY = (X[:, 0] + X[:, 1] ** 2 > 0.7).astype(np.int64)
CLASSES = np.digitize(X[:, 0] - X[:, 2], [-0.8, 0.8])
NAMES = np.array(["low", "middle", "high"])[CLASSES]
TARGET = (X[:, 0] * 3 - np.sin(X[:, 3]) + X[:, 4] * X[:, 5]).astype(np.float32)
NEW = GENERATOR.standard_normal((50, 6)).astype(np.float32)


def convert(model, types=None, zipmap=False):
    options = {id(model): {"zipmap": zipmap}} if hasattr(model, "predict_proba") else None
    types = types or [("x", FloatTensorType([None, 6]))]
    onnx = skl2onnx.convert_sklearn(model, initial_types=types, options=options, target_opset=21)
    return lmnative.Session(onnx.SerializeToString(), threads=1)


CLASSIFIERS = {
    "logistic": lambda: pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
    "forest": lambda: ensemble.RandomForestClassifier(20, max_depth=6, random_state=1),
    "extra trees": lambda: ensemble.ExtraTreesClassifier(10, max_depth=5, random_state=1),
    "boosting": lambda: ensemble.GradientBoostingClassifier(n_estimators=20, random_state=1),
    "tree": lambda: tree.DecisionTreeClassifier(max_depth=5, random_state=1),
    "bayes": lambda: naive_bayes.GaussianNB(),
    "perceptron": lambda: neural_network.MLPClassifier(hidden_layer_sizes=(12,), max_iter=80, random_state=1),
    "neighbours": lambda: neighbors.KNeighborsClassifier(5),
    "polynomial": lambda: pipeline.make_pipeline(
        preprocessing.PolynomialFeatures(2), preprocessing.MinMaxScaler(), linear_model.LogisticRegression()
    ),
    "components": lambda: pipeline.make_pipeline(
        impute.SimpleImputer(), decomposition.PCA(4), linear_model.LogisticRegression()
    ),
}


@pytest.mark.parametrize("labels", ["binary", "classes", "names"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name, labels):
    y = {"binary": BINARY, "classes": CLASSES, "names": NAMES}[labels]
    model = CLASSIFIERS[name]().fit(X, y)
    label, probability = convert(model).run(None, {"x": NEW})
    want = model.predict_proba(NEW)
    assert np.abs(probability - want).max() < 1e-5
    # float32 and float64 may differ in what is as likely as something else.
    clear = np.sort(want, 1)[:, -1] - np.sort(want, 1)[:, -2] > 1e-4
    assert np.array_equal(label[clear], model.predict(NEW)[clear])


def test_support_vectors():
    for kernel in ("rbf", "linear", "poly"):
        model = svm.SVC(kernel=kernel, probability=True, random_state=1).fit(X, CLASSES)
        label, probability = convert(model).run(None, {"x": NEW})
        assert np.abs(probability - model.predict_proba(NEW)).max() < 1e-5
        assert np.array_equal(label, model.predict(NEW))
    model = svm.LinearSVC(random_state=1).fit(X, BINARY)
    assert np.array_equal(convert(model).run(None, {"x": NEW})[0], model.predict(NEW))


REGRESSORS = {
    "linear": linear_model.LinearRegression,
    "ridge": lambda: pipeline.make_pipeline(preprocessing.RobustScaler(), linear_model.Ridge()),
    "forest": lambda: ensemble.RandomForestRegressor(20, max_depth=6, random_state=1),
    "boosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=20, random_state=1),
    "support vectors": svm.SVR,
    "perceptron": lambda: neural_network.MLPRegressor(hidden_layer_sizes=(10,), max_iter=80, random_state=1),
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors(name):
    model = REGRESSORS[name]().fit(X, TARGET)
    (y,) = convert(model).run(None, {"x": NEW})
    assert np.abs(y.ravel() - model.predict(NEW)).max() < 1e-4


def test_clusters():
    model = cluster.KMeans(4, n_init=3, random_state=1).fit(X)
    label, distance = convert(model).run(None, {"x": NEW})
    assert np.array_equal(label, model.predict(NEW))
    assert np.abs(distance - model.transform(NEW)).max() < 1e-4


def test_probabilities_as_maps():
    model = linear_model.LogisticRegression().fit(X, NAMES)
    _, maps = convert(model, zipmap=True).run(None, {"x": NEW})
    want = model.predict_proba(NEW)
    assert len(maps) == len(NEW) and set(maps[0]) == set(model.classes_)
    for row, probabilities in zip(maps, want, strict=True):
        assert all(abs(row[label] - p) < 1e-5 for label, p in zip(model.classes_, probabilities, strict=True))


def test_columns_of_strings_and_numbers():
    colour = GENERATOR.choice(["red", "green", "blue"], (300, 1)).astype(object)
    size = GENERATOR.choice(["s", "m", "l"], (300, 1)).astype(object)
    age = GENERATOR.integers(1, 90, (300, 1))
    columns = np.concatenate([colour, size, age.astype(object)], 1)
    y = ((colour[:, 0] == "red") ^ (age[:, 0] > 40)).astype(np.int64)
    model = pipeline.make_pipeline(
        compose.ColumnTransformer([
            ("colour", preprocessing.OneHotEncoder(handle_unknown="ignore"), [0]),
            ("size", preprocessing.OrdinalEncoder(categories=[["s", "m", "l"]]), [1]),
            ("age", preprocessing.StandardScaler(), [2]),
        ]),
        linear_model.LogisticRegression(),
    ).fit(columns, y)  # fmt: skip
    types = [
        ("colour", StringTensorType([None, 1])), ("size", StringTensorType([None, 1])),
        ("age", Int64TensorType([None, 1])),
    ]  # fmt: skip
    new = np.array([["red", "s", 10], ["blue", "l", 80], ["purple", "m", 41]], object)
    feeds = {"colour": new[:, :1], "size": new[:, 1:2], "age": new[:, 2:].astype(np.int64)}
    label, probability = convert(model, types).run(None, feeds)
    assert np.abs(probability - model.predict_proba(new)).max() < 1e-5
    assert np.array_equal(label, model.predict(new))
