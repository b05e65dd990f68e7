# What deploy/bundle/make.sh installs, component `bundle`: programs, the tests that need a GPU, the shared libraries that
# the loader finds for them, jobs, and the first job's data. The C library belongs to the host's loader and is left
# out. So are CUDA's libraries: its runtime is linked into the programs, and the host provides the driver and cuBLAS.
if(NOT SLUICE_HAS_CUDA)
  install(CODE [[message(WARNING "this build has no CUDA backend: its bundle does nothing on a GPU, and run.sh test skips "
                                 "(exit 3). Build where the toolkit is; -DSLUICE_WITH_CUDA=ON makes its absence an error")]]
    COMPONENT bundle EXCLUDE_FROM_ALL)
endif()
set(bundled sluice sluice-scheduler sluice-pserver sluice-worker sluice-bench)
set(bundled_tests cuda_device_test cublas_library_test cuda_kernels_test cuda_geo_steps_test cuda_geo_optimizer_test cuda_net_test
  geo_on_device_test)
add_custom_target(sluice_gpu_tests)
foreach(target ${bundled} ${bundled_tests})
  if(TARGET ${target})
    set(folder bin)
    if(target IN_LIST bundled_tests)
      set(folder tests)
      add_dependencies(sluice_gpu_tests ${target})
    endif()
    install(TARGETS ${target} RUNTIME_DEPENDENCY_SET bundle RUNTIME DESTINATION ${folder}
      COMPONENT bundle EXCLUDE_FROM_ALL)
  endif()
endforeach()
install(RUNTIME_DEPENDENCY_SET bundle
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread)\\.so" "^libcu(da|blas)" "^libnv"
  LIBRARY DESTINATION lib COMPONENT bundle EXCLUDE_FROM_ALL)
# An optional part: Parquet. The libraries of pyarrow find each other in their folder.
if(SLUICE_HAS_ARROW)
  install(TARGETS sluice_arrow_plugin LIBRARY DESTINATION lib COMPONENT bundle EXCLUDE_FROM_ALL)
  install(FILES ${SLUICE_ARROW_LIBRARIES} DESTINATION lib COMPONENT bundle EXCLUDE_FROM_ALL)
endif()
install(DIRECTORY configs DESTINATION . COMPONENT bundle EXCLUDE_FROM_ALL FILES_MATCHING PATTERN *.textproto)
install(DIRECTORY data/adult DESTINATION data COMPONENT bundle EXCLUDE_FROM_ALL)
install(PROGRAMS deploy/bundle/run.sh DESTINATION . COMPONENT bundle EXCLUDE_FROM_ALL)
