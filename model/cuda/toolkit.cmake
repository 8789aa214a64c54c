# The CUDA toolkit, where there is one: a machine's own (nvcc on the PATH, or /usr/local/cuda), or what `tools/install_dependencies cuda` put into
# the user's cache. UPS_CUDA=OFF builds without although there is one. Without it everything else builds, and `ups doctor` says why CUDA is not used.
#
#   UPS_CUDA_NVCC       the compiler; empty where there is none
#   UPS_CUDA_INCLUDE    its headers
#   UPS_CUDA_LIBRARIES  the folder of its libraries
#   UPS_CUDA_CUBLASLT   cuBLASLt, a file
#   ups_cuda_object(OUT SOURCE [OF_90A])
#       compiles a .cu file for sm_80, sm_90a and, as PTX, for what comes after. OUT_OBJECT and OUT_PTX are the files made: the PTX is of the same
#       compilation, and is what the emulator runs. One PTX makes the code of all cards, but for files whose code for sm_90a is another: of those
#       (OF_90A) OUT_PTX is for sm_80, and the PTX for sm_90a lies beside it, X.compute_90a.ptx.
set(UPS_CUDA ON CACHE BOOL "Build the CUDA device where a toolkit is found")
set(UPS_CUDA_BUILT "" CACHE PATH "Another build of the same tree, whose CUDA objects are taken instead of compiled again: sanitizers change nothing in them")
option(UPS_CUDA_LINES "Kernels know their lines, as the emulator and compute-sanitizer tell them; without, they are 0.6 of the size" ON)
set(UPS_CUDA_ARCHITECTURES "-gencode=arch=compute_80,code=[sm_80,sm_90a,compute_80]")
set(UPS_CUDA_ARCHITECTURES_APART -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_90,code=compute_90)

if(DEFINED ENV{XDG_CACHE_HOME})
  set(cache $ENV{XDG_CACHE_HOME}/ups/cuda)
else()
  set(cache $ENV{HOME}/.cache/ups/cuda)
endif()
if(UPS_CUDA)
  find_program(UPS_CUDA_NVCC nvcc PATHS /usr/local/cuda/bin ${cache}/nvidia/cu13/bin)
endif()
if(UPS_CUDA AND UPS_CUDA_NVCC)
  get_filename_component(nvcc ${UPS_CUDA_NVCC} REALPATH)
  get_filename_component(UPS_CUDA_ROOT ${nvcc}/../.. ABSOLUTE)
  set(UPS_CUDA_INCLUDE ${UPS_CUDA_ROOT}/include)
  foreach(folder lib64 lib targets/x86_64-linux/lib)
    if(EXISTS ${UPS_CUDA_ROOT}/${folder}/libcudart_static.a)
      set(UPS_CUDA_LIBRARIES ${UPS_CUDA_ROOT}/${folder})
      break()
    endif()
  endforeach()
  file(GLOB cublaslt ${UPS_CUDA_LIBRARIES}/libcublasLt.so ${UPS_CUDA_LIBRARIES}/libcublasLt.so.1[0-9]) # wheels have the second alone
  if(cublaslt)
    list(GET cublaslt 0 UPS_CUDA_CUBLASLT)
  endif()
  if(NOT UPS_CUDA_LIBRARIES OR NOT UPS_CUDA_CUBLASLT OR NOT EXISTS ${UPS_CUDA_INCLUDE}/cublasLt.h)
    message(STATUS "Without CUDA: ${UPS_CUDA_ROOT} lacks cudart or cuBLAS; `tools/install_dependencies cuda` installs them")
    unset(UPS_CUDA_NVCC CACHE) # the next configuration looks again
    set(UPS_CUDA_NVCC "")
  else()
    execute_process(COMMAND ${UPS_CUDA_NVCC} --version OUTPUT_VARIABLE told ERROR_QUIET)
    string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" told "${told}")
    set(UPS_CUDA_COMPRESSION -Xfatbin=-compress-all) # machine code for three architectures, with its lines: a quarter of the size
    if(CMAKE_MATCH_1 VERSION_GREATER_EQUAL 12.8)
      set(UPS_CUDA_COMPRESSION --compress-mode=size)
    endif()
    find_program(UPS_CUDA_HOST_COMPILER NAMES $ENV{NVCC_CCBIN} g++) # which nvcc calls by this name
    if(NOT UPS_CUDA_HOST_COMPILER)
      message(STATUS "Without CUDA: nvcc needs g++, which is not installed; `tools/install_dependencies cuda` installs it")
      unset(UPS_CUDA_NVCC CACHE)
      unset(UPS_CUDA_HOST_COMPILER CACHE)
      set(UPS_CUDA_NVCC "")
    elseif(CMAKE_MATCH_1 VERSION_LESS 12.3) # kernels of more than 4 KiB of arguments; older ones were not tried
      message(STATUS "Without CUDA: ${UPS_CUDA_ROOT} is of CUDA ${CMAKE_MATCH_1}, and 12.3 is the oldest that will do")
      unset(UPS_CUDA_NVCC CACHE)
      set(UPS_CUDA_NVCC "")
    elseif(CMAKE_MATCH_1 VERSION_LESS 12.9) # ptxas of 12.4, 12.6 and 12.8 were seen to make products of warpgroups wait for each other
      message(STATUS "CUDA ${CMAKE_MATCH_1}: kernels of groups of warps, for cards of compute capability 9.0, will be slow; build with CUDA 13 for these")
    endif()
  endif()
elseif(NOT UPS_CUDA)
  set(UPS_CUDA_NVCC "")
  message(STATUS "Without CUDA: UPS_CUDA is off")
else()
  set(UPS_CUDA_NVCC "")
  message(STATUS "Without CUDA: no nvcc was found; `tools/install_dependencies cuda` installs one")
endif()

function(ups_cuda_object out source)
  cmake_parse_arguments(PARSE_ARGV 2 kernels "OF_90A" "" "")
  get_filename_component(name ${source} NAME_WE)
  get_filename_component(path ${source} ABSOLUTE)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${name}.nvcc)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.cu.o)
  file(STRINGS ${path} differs REGEX "groups\\.cuh|rings\\.cuh|__CUDA_ARCH" LIMIT_COUNT 1)
  if(differs AND NOT kernels_OF_90A)
    message(FATAL_ERROR "${source}: its code for sm_90a is another than that for sm_80 (${differs}); name it so (OF_90A, of_90a)")
  endif()
  if(kernels_OF_90A)
    set(architectures ${UPS_CUDA_ARCHITECTURES_APART})
    set(ptx ${folder}/${name}.compute_80.ptx)
    set(ptx_90 ${folder}/${name}.compute_90a.ptx)
  else()
    set(architectures ${UPS_CUDA_ARCHITECTURES})
    set(ptx ${folder}/${name}.ptx)
    set(ptx_90 "")
  endif()
  if(UPS_CUDA_BUILT)
    string(REPLACE ${PROJECT_BINARY_DIR} ${UPS_CUDA_BUILT} object ${object})
    string(REPLACE ${PROJECT_BINARY_DIR} ${UPS_CUDA_BUILT} ptx ${ptx})
    if(NOT EXISTS ${object} OR NOT EXISTS ${ptx})
      message(FATAL_ERROR "UPS_CUDA_BUILT: ${object} is not there; build ${UPS_CUDA_BUILT} first")
    endif()
    set(${out}_OBJECT ${object} PARENT_SCOPE)
    set(${out}_PTX ${ptx} PARENT_SCOPE)
    return()
  endif()
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(OUTPUT ${object} ${ptx} ${ptx_90}
    COMMAND ${UPS_CUDA_NVCC} -std=c++17 -O3 $<$<BOOL:${UPS_CUDA_LINES}>:-lineinfo> ${architectures} ${UPS_CUDA_COMPRESSION} -I${PROJECT_SOURCE_DIR} $<$<BOOL:${UPS_WERROR}>:-Werror=all-warnings>
      -Xcompiler=-fPIC,-g1,-Wall,-fvisibility=hidden --keep --keep-dir ${folder} -MD -MF ${object}.d -MT ${object} -c ${path} -o ${object}
    DEPENDS ${path} DEPFILE ${object}.d COMMENT "Building CUDA object ${name}.cu.o" VERBATIM COMMAND_EXPAND_LISTS)
  set(${out}_OBJECT ${object} PARENT_SCOPE)
  set(${out}_PTX ${ptx} PARENT_SCOPE)
endfunction()
