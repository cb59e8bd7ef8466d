# The only file that holds -m flags. A kernel set is src/kernels/<set>/*.cc compiled with its flags; every
# other file of the project is plain x86-64. Without errno a square root is one instruction, never a library call;
# without exceptions no weak reference to their runtime is left in the objects. A release is optimized for speed here even
# where the rest is to compile fast (the preset `command`).
set(KVFORK_KERNEL_FLAGS -fno-math-errno -fno-exceptions $<$<CONFIG:Release>:-O3>)
set(KVFORK_FLAGS_portable ${KVFORK_KERNEL_FLAGS})
set(KVFORK_FLAGS_avx2 ${KVFORK_KERNEL_FLAGS} -mavx2 -mfma -mf16c)
set(KVFORK_FLAGS_avx512 ${KVFORK_KERNEL_FLAGS} -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl)
set(KVFORK_FLAGS_avx512_bf16 ${KVFORK_FLAGS_avx512} -mavx512bf16)
set(KVFORK_FLAGS_amx ${KVFORK_FLAGS_avx512} -mamx-tile -mamx-bf16)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12's own AVX-512 headers start some results from a deliberately unset register (GCC bug 105593).
  list(APPEND KVFORK_FLAGS_avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
  list(APPEND KVFORK_FLAGS_avx512_bf16 -Wno-uninitialized -Wno-maybe-uninitialized)
  list(APPEND KVFORK_FLAGS_amx -Wno-uninitialized -Wno-maybe-uninitialized)
endif()

# Tests that compile a set's code themselves: sources built with its flags, joined to a target.
function(kvfork_isa_sources target isa)
  add_library(${target}_${isa} OBJECT ${ARGN})
  target_include_directories(${target}_${isa} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${target}_${isa} PRIVATE ${KVFORK_FLAGS_${isa}})
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${isa}>)
endfunction()

# The layer `kernels`: src/kernels/*.cc and one folder per set in KVFORK_ISAS.
function(kvfork_kernel_layer)
  kvfork_layer(kernels)
  get_property(objects GLOBAL PROPERTY kvfork_layer_kernels_objects)
  foreach(isa ${KVFORK_ISAS})
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/${isa}/*.cc)
    if(NOT sources)
      continue()
    endif()
    add_library(kvfork_kernels_${isa} OBJECT ${sources})
    target_include_directories(kvfork_kernels_${isa} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_compile_options(kvfork_kernels_${isa} PRIVATE ${KVFORK_FLAGS_${isa}})
    list(APPEND objects $<TARGET_OBJECTS:kvfork_kernels_${isa}>)
    string(TOUPPER ${isa} upper)
    if(TARGET kvfork_kernels)
      get_target_property(type kvfork_kernels TYPE)
      if(NOT type STREQUAL "INTERFACE_LIBRARY")
        target_compile_definitions(kvfork_kernels PRIVATE KVFORK_HAVE_${upper}=1)
      endif()
    endif()
  endforeach()
  set_property(GLOBAL PROPERTY kvfork_layer_kernels_objects ${objects})
endfunction()
