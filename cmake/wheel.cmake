# What a wheel has, component `wheel`: the package, its extension module, the four programs, and the demonstration job with its
# data. pyproject.toml and deploy/wheel/make.sh pack it. auditwheel adds the shared libraries afterwards.
#
# The folders are those of site-packages. The demonstration keeps the folders of this tree, because the job names its data
# relative to itself.
if(NOT SLUICE_PYTHON)
  return()
endif()
install(TARGETS sluice_python LIBRARY DESTINATION sluice COMPONENT wheel EXCLUDE_FROM_ALL)
install(TARGETS sluice sluice-scheduler sluice-pserver sluice-worker RUNTIME DESTINATION sluice/bin COMPONENT wheel EXCLUDE_FROM_ALL)
install(DIRECTORY python/sluice DESTINATION . COMPONENT wheel EXCLUDE_FROM_ALL
  FILES_MATCHING PATTERN *.py PATTERN *.pyi PATTERN py.typed PATTERN __pycache__ EXCLUDE)
install(FILES configs/adult_wide_deep.textproto DESTINATION sluice/demo/configs COMPONENT wheel EXCLUDE_FROM_ALL)
install(DIRECTORY data/adult DESTINATION sluice/demo/data COMPONENT wheel EXCLUDE_FROM_ALL)
