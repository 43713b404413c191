// Arrays in NumPy's .npy format (versions 1 and 2, C order, little endian), as GRAPH_JSON.md maps
// data types to it, and the moves between packed arrays and the stride layouts of tensors.
#pragma once
#include <string>
#include <string_view>

#include "sinter/base/data_type.hpp"
#include "sinter/base/dims.hpp"
#include "sinter/base/result.hpp"

namespace sinter {

struct NpyArray {
  std::string descr;  // NumPy's name of the element type: "<f4", "|b1"
  Dims dim;           // as many as the file has, none for a 0-d array
  std::string bytes;  // packed, row-major
};

// The element type of a tensor's array: bf16 as "<u2", f8 and f4 as "|u1".
std::string_view npy_descr(DataType type);

// Element type, dims and size are checked against each other, not against a tensor.
Result<NpyArray> npy_from_bytes(std::string_view file, const std::string& path = {});
std::string npy_to_bytes(DataType type, const Dims& dim, std::string_view packed);

// The packed elements of a file that holds an array of this type and these dims; `tensor` is the
// name for errors.
Result<std::string> read_npy(const std::string& path, DataType type, const Dims& dim,
                             std::string_view tensor);
Status write_npy(const std::string& path, DataType type, const Dims& dim, std::string_view packed);

// Between packed row-major elements and a stride layout of span_elements(dim, stride) elements.
// Where strides of 0 share an element, the last one written stays.
void scatter(const void* packed, int element_bytes, const Dims& dim, const Dims& stride,
             void* strided);
void gather(const void* strided, int element_bytes, const Dims& dim, const Dims& stride,
            void* packed);

}  // namespace sinter
