// Streams and events of the fake driver. Nothing is captured, and time passes with launches:
// kFakeMicroseconds each.
#include <cuda.h>

#include <map>

#include "fake_driver.hpp"

#undef cuEventElapsedTime  // newer headers rename it; the library asks for this name

namespace {

std::map<CUevent, int> launches_before;  // each event, as it was recorded last

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  return *stream = reinterpret_cast<CUstream>(new char), CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  delete reinterpret_cast<char*>(stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
CUresult cuEventCreate(CUevent* event, unsigned) {
  return *event = reinterpret_cast<CUevent>(new char), CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
  launches_before.erase(event);
  delete reinterpret_cast<char*>(event);
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream) {
  return launches_before[event] = fake_driver_state()->launches, CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventElapsedTime(float* ms, CUevent begin, CUevent end) {
  const int launches = launches_before[end] - launches_before[begin];
  return *ms = static_cast<float>(launches) * kFakeMicroseconds / 1000, CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture(CUstream, CUstreamCaptureMode) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuStreamEndCapture(CUstream, CUgraph*) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuGraphInstantiateWithFlags(CUgraphExec*, CUgraph, unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGraphLaunch(CUgraphExec, CUstream) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuGraphDestroy(CUgraph) { return CUDA_SUCCESS; }
CUresult cuGraphExecDestroy(CUgraphExec) { return CUDA_SUCCESS; }

}  // extern "C"
