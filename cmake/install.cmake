# What `cmake --install` puts where: the tool, the library with its headers, what find_package(kvfork) reads, man pages and
# shell completion.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(KVFORK_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/kvfork)

install(TARGETS kvfork EXPORT kvforkTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kvfork DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT kvforkTargets NAMESPACE kvfork:: DESTINATION ${KVFORK_PACKAGE_DIR})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/kvforkConfig.cmake.in ${PROJECT_BINARY_DIR}/kvforkConfig.cmake
                              INSTALL_DESTINATION ${KVFORK_PACKAGE_DIR})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kvforkConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kvforkConfig.cmake ${PROJECT_BINARY_DIR}/kvforkConfigVersion.cmake
        DESTINATION ${KVFORK_PACKAGE_DIR})

if(TARGET kvfork_cli)
  install(TARGETS kvfork_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/man/*.1)
  install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${PROJECT_SOURCE_DIR}/completions/kvfork.bash RENAME kvfork
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${PROJECT_SOURCE_DIR}/completions/kvfork.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  install(FILES ${PROJECT_SOURCE_DIR}/completions/_kvfork DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endif()
