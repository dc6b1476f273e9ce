"""Every array type with its reason.

A constant in capitals is the scalar type to allocate with; the alias beside it is the array type
to annotate with. Types are fixed in size on every platform, because arrays go into files.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

AnyArray: TypeAlias = NDArray[Any]

# Raw scores. float64: hundreds of small leaves are added up, and the sum must not depend on luck.
Margins: TypeAlias = NDArray[np.float64]

# Feature values as the engine sees them. float64: integers up to 2^53 keep their identity, and
# thresholds between neighbouring float32 values exist.
FEATURE_VALUE = np.float64
Rows: TypeAlias = NDArray[np.float64]

# A class's number among the sorted labels, -1 for none.
CLASS_INDEX = np.int32
ClassIndices: TypeAlias = NDArray[np.int32]

# A node's number within its tree, a feature's number, a set's number; all use -1 for none.
NODE_INDEX = np.int32
NodeIndices: TypeAlias = NDArray[np.int32]

# A position in a flat array over all trees. int64: the sum over trees may pass 2^31.
OFFSET = np.int64
Offsets: TypeAlias = NDArray[np.int64]

# A category's number. int32 as in every foreign library; negative values are never in a set.
CATEGORY = np.int32
Categories: TypeAlias = NDArray[np.int32]

# Thresholds, leaf values, weights, statistics. float64: it holds every float32 of the libraries
# that use those, exactly.
REAL = np.float64
Reals: TypeAlias = NDArray[np.float64]

# Yes or no per node.
FLAG = np.bool_
Flags: TypeAlias = NDArray[np.bool_]

# One of a few named kinds per node.
SMALL_KIND = np.uint8
SmallKinds: TypeAlias = NDArray[np.uint8]
