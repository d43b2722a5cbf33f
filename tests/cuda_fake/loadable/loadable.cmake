# The fake of CUDA as a folder of libraries: NNC_CUDA_PATH=<build>/cuda_fake nnc run --target=cuda ... runs on it. bench/gpu.sh does, in small.
set(fake_dir ${CMAKE_BINARY_DIR}/cuda_fake)
add_library(fake_cuda MODULE ${CMAKE_CURRENT_SOURCE_DIR}/cuda_fake/loadable/loadable.c ${CMAKE_CURRENT_SOURCE_DIR}/cuda_fake/loadable/state.c)
target_include_directories(fake_cuda PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
nnc_test_kernels(fake_cuda)
target_link_libraries(fake_cuda PRIVATE nnc_test_fake_cuda nnc_test_fake_cudnn nnc_cuda)
set_target_properties(fake_cuda PROPERTIES OUTPUT_NAME fake_cuda PREFIX lib LIBRARY_OUTPUT_DIRECTORY ${fake_dir})
# All libraries are one file: they share memory and streams.
foreach(name libcuda.so.1 libcudart.so.13 libnvrtc.so.13 libcublasLt.so.13 libcudnn.so.9 libnvidia-ml.so.1 libnccl.so.2 libcupti.so.13)
  add_custom_command(TARGET fake_cuda POST_BUILD COMMAND ${CMAKE_COMMAND} -E create_symlink libfake_cuda.so ${fake_dir}/${name})
endforeach()
